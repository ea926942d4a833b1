// The device's random generator: a key (seed) and a counter (offset), nothing on the device.
//
// Every random operator takes the current (seed, offset) as a run-time operand and advances the
// offset by one, so drawing never compiles and one seed gives one sequence.
#pragma once

#include <ATen/core/Generator.h>

#include <array>

namespace torch_tpu {

class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(int device);
  ~Generator() override = default;

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }

  // The operand of one draw; takes the generator's mutex.
  std::array<uint64_t, 2> next();

 private:
  Generator* clone_impl() const override;

  uint64_t seed_ = 0;
  uint64_t offset_ = 0;
};

const at::Generator& default_generator(int device);
at::Generator new_generator(int device);
// The generator of a call: `argument` if given (its device is checked), else the default one.
Generator& generator_of(const std::optional<at::Generator>& argument, int device);

}  // namespace torch_tpu
