#pragma once
#include "family/expected_tensors.h"
