#include "kernels/backends.h"

#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference_backend.h"

namespace kvcal {

const Registry<MakeBackend> kBackends{"device",
                                      {
                                          {"cpu", make_cpu_backend},
                                          {"reference", make_reference_backend},
                                      }};

}  // namespace kvcal
