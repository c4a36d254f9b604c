#pragma once
#include "backend/backend.h"
