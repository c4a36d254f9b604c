#pragma once
#include "recipe/yaml.h"
