#include "kernels/backends.h"

#include "kernels/cpu/cpu_backend.h"
#ifdef KVCAL_GPU_NAME
#include "kernels/gpu/make_gpu_backend.h"
#endif
#include "kernels/reference/reference_backend.h"

namespace kvcal {

const Registry<MakeBackend> kBackends{"device",
                                      {
                                          {"cpu", make_cpu_backend},
                                          {"reference", make_reference_backend},
#ifdef KVCAL_GPU_NAME
                                          {KVCAL_GPU_NAME, make_gpu_backend},
#endif
                                      }};

#ifdef KVCAL_GPU_NAME
std::string_view gpu_device_name() {
  return KVCAL_GPU_NAME;
}
std::string gpu_problem(int device_index) {
  return gpu_device_problem(device_index);
}
int gpu_count() {
  return gpu_device_count();
}
std::string gpu_bus_id(int device_index) {
  return gpu_device_bus_id(device_index);
}
#else
std::string_view gpu_device_name() {
  return "";
}
std::string gpu_problem(int) {
  return "this kvcal was built without GPUs";
}
int gpu_count() {
  return 0;
}
std::string gpu_bus_id(int) {
  return "";
}
#endif

}  // namespace kvcal
