#pragma once
#include "core/registry.h"
