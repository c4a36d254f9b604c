#pragma once
#include "backend/attention_operations.h"
