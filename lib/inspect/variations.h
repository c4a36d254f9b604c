#pragma once
#include "inspect/family_list.h"
