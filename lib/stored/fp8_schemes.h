#pragma once
#include "stored/stored_form.h"
