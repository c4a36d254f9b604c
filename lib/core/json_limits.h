#pragma once
#include "core/json.h"
