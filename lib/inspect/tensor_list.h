#pragma once
#include "inspect/inspection.h"
