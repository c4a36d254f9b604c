#pragma once
#include "recipe/args_fields.h"
