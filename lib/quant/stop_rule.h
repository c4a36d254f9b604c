#pragma once
#include "quant/provenance.h"
