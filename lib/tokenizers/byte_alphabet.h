#pragma once
#include "tokenizers/components.h"
