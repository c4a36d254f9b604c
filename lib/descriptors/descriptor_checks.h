#pragma once
#include "descriptors/descriptor_fields.h"
