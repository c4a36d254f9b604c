#pragma once
#include "backend/scan_operations.h"
