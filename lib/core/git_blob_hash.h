#pragma once
#include "core/hash.h"
