#pragma once
#include "export/checkpoint_copy.h"
