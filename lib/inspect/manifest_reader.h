#pragma once
#include "inspect/page_values.h"
