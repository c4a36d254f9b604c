#pragma once
#include "backend/operations.h"
