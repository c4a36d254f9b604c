#pragma once
#include "tokenizers/token_model.h"
