#pragma once
#include "inspect/checkpoint_source.h"
