#pragma once
#include "core/pages.h"
