#pragma once
#include "family/config_reader.h"
