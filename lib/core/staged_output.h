#pragma once
#include "core/output.h"
