#pragma once
#include "backend/pack_shape.h"
