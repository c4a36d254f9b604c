#pragma once
#include "core/process.h"
