#include "family/tensor_tables.h"

namespace kvcal {

Architecture granite_architecture();

// Granite within Granite 4 Vision. Source: transformers, models/granite4_vision.
Architecture granite4_vision_architecture() {
  Architecture family = granite_architecture();
  family.name = "granite4_vision";
  family.model_types = {"granite4_vision_text"};
  family.attention_class = "Granite4VisionTextAttention";
  family.description = "text model of Granite 4 Vision";
  return family;
}

}  // namespace kvcal
