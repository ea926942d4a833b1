"""What each operator means: rules only, no machinery. One file per family."""
