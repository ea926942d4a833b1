// See generator.h.
#include "generator.h"

#include <ATen/Utils.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <deque>

#include "runtime.h"

namespace torch_tpu {

namespace {

constexpr uint64_t kDefaultSeed = 67280421310721ull;  // c10::default_rng_seed_val
constexpr size_t kStateBytes = 2 * sizeof(uint64_t);

// Spreads seeds over the key space: neighbouring seeds must not give related streams (splitmix64,
// https://prng.di.unimi.it/splitmix64.c).
uint64_t mix(uint64_t z) {
  z += 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

}  // namespace

Generator::Generator(int device)
    : c10::GeneratorImpl(
          c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device)),
          c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      seed_(kDefaultSeed) {}

void Generator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

uint64_t Generator::seed() {
  uint64_t value = c10::detail::getNonDeterministicRandom();
  set_current_seed(value);
  return value;
}

void Generator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  TORCH_CHECK(static_cast<size_t>(state.numel()) == kStateBytes, "RNG state of tpu has ",
              kStateBytes, " bytes, not ", state.numel());
  std::array<uint64_t, 2> words;
  std::memcpy(words.data(), state.data(), kStateBytes);
  seed_ = words[0];
  offset_ = words[1];
}

c10::intrusive_ptr<c10::TensorImpl> Generator::get_state() const {
  auto state = at::empty({static_cast<int64_t>(kStateBytes)}, at::TensorOptions().dtype(at::kByte));
  std::array<uint64_t, 2> words{seed_, offset_};
  std::memcpy(state.data_ptr(), words.data(), kStateBytes);
  return state.getIntrusivePtr();
}

std::array<uint64_t, 2> Generator::next() {
  std::lock_guard guard(mutex_);
  // Each draw has a key of its own, so that the counters of two draws can never meet.
  return {mix(seed_ ^ mix(offset_++)), 0};
}

Generator* Generator::clone_impl() const {
  auto* copy = new Generator(device().index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

const at::Generator& default_generator(int device) {
  static std::mutex mutex;
  static auto* generators = new std::deque<at::Generator>;
  int index = device < 0 ? current_device() : device;
  std::lock_guard guard(mutex);
  while (static_cast<int>(generators->size()) <= index) {
    generators->push_back(new_generator(static_cast<int>(generators->size())));
  }
  return (*generators)[index];
}

at::Generator new_generator(int device) {
  return at::make_generator<Generator>(device < 0 ? current_device() : device);
}

Generator& generator_of(const std::optional<at::Generator>& argument, int device) {
  const at::Generator& chosen =
      argument.has_value() && argument->defined() ? *argument : default_generator(device);
  TORCH_CHECK(chosen.device().type() == c10::DeviceType::PrivateUse1,
              "Expected a 'tpu' device type for generator but found '", chosen.device().type(),
              "'");
  return *chosen.get<Generator>();
}

}  // namespace torch_tpu
