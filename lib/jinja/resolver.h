#pragma once

#include "jinja/syntax.h"

namespace kvcal::jinja {

/// Decides for every name of the tree which variable it means, by Jinja2's rules: a scope is a
/// loop, macro, call block, with, set or filter block; a name that a scope assigns is its own from
/// the scope's start, however late the assignment stands. Also refuses what Jinja2 refuses when it
/// compiles a template: break outside of loops, unknown filters and tests outside of conditions,
/// assignment to `loop`. Throws Error with the line. Source of the rules: Jinja2 3.1, idtracking.py
/// and compiler.py.
void resolve_names(SyntaxTree& tree);

}  // namespace kvcal::jinja
