#pragma once
#include "descriptors/family_file.h"
