#pragma once
#include "run/loaded_model.h"
