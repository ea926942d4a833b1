// What makes two calls the same program: a list of words, and the operands that are not in it.
//
// Everything about a call enters the key except the contents of tensors, the values of run-time
// scalars and the starts of views; those become operands. A key is compared in full on a hit: a
// hash alone would one day return another program's answer.
#pragma once

#include <c10/util/SmallVector.h>

#include <cstring>

#include "../device/views.h"

namespace torch_tpu {

class Key {
 public:
  void push(int64_t word) {
    words_.push_back(word);
    hash_ = (hash_ ^ static_cast<uint64_t>(word)) * 0x9E3779B97F4A7C15ull;
    hash_ ^= hash_ >> 29;
  }
  void push(c10::ArrayRef<int64_t> words) {
    for (int64_t word : words) push(word);
  }
  void push(double number) {
    int64_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    push(bits);
  }
  void push(const std::string& text) {
    push(static_cast<int64_t>(text.size()));
    for (size_t i = 0; i < text.size(); i += 8) {
      int64_t word = 0;
      std::memcpy(&word, text.data() + i, std::min<size_t>(8, text.size() - i));
      push(word);
    }
  }
  uint64_t hash() const { return hash_; }
  c10::ArrayRef<int64_t> words() const { return words_; }

 private:
  c10::SmallVector<int64_t, 48> words_;
  uint64_t hash_ = 0xcbf29ce484222325ull;
};

// One run-time input of a program: a device array, or a few bytes that become one when needed.
struct Operand {
  pjrt::BufferRef array;
  Cell* cell = nullptr;  // whose array it is, if it may be donated on the cell's behalf
  pjrt::ElementType type = pjrt::ElementType::kInvalid;
  int32_t length = -1;  // of a constant vector; -1 for a scalar
  uint32_t bytes = 0;
  bool cached = true;  // false for values that never repeat
  alignas(8) char data[Runtime::kMaxConstant];

  Operand() {}  // leaves `data` uninitialised on purpose: this is the hot path

  static Operand of_array(pjrt::BufferRef array, Cell* cell = nullptr) {
    Operand operand;
    operand.array = std::move(array);
    operand.cell = cell;
    return operand;
  }
  template <class T>
  static Operand of_scalar(pjrt::ElementType type, const T& value) {
    return of_bytes(type, -1, &value, sizeof(T));
  }
  static Operand of_words(c10::ArrayRef<int64_t> words) {
    return of_bytes(pjrt::ElementType::kS64, static_cast<int32_t>(words.size()), words.data(),
                    words.size() * sizeof(int64_t));
  }
  static Operand of_bytes(pjrt::ElementType type, int32_t length, const void* from, size_t bytes) {
    TORCH_INTERNAL_ASSERT(bytes <= Runtime::kMaxConstant);
    Operand operand;
    operand.type = type;
    operand.length = length;
    operand.bytes = static_cast<uint32_t>(bytes);
    std::memcpy(operand.data, from, bytes);
    return operand;
  }
  // The operand as a device array.
  const pjrt::BufferRef& on(int device);
};

using Operands = c10::SmallVector<Operand, 4>;

}  // namespace torch_tpu
