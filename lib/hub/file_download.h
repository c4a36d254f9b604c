#pragma once
#include "hub/hub_files.h"
