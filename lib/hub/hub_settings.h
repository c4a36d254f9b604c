#pragma once
#include "hub/hub_id.h"
