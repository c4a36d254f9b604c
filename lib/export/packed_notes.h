#pragma once
#include "export/packed_copy.h"
