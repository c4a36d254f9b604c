#pragma once
#include "family/model_type_support.h"
