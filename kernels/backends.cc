#include "kernels/backends.h"

#include "kernels/reference/reference_backend.h"

namespace kvcal {

const Registry<MakeBackend> kBackends{"device",
                                      {
                                          {"cpu", make_reference_backend},
                                          {"reference", make_reference_backend},
                                      }};

}  // namespace kvcal
