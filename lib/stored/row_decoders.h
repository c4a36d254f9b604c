#pragma once
#include "stored/weight_rows.h"
