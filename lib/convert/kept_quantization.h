#pragma once
#include "convert/output_model.h"
