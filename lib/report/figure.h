#pragma once
#include "report/page.h"
