#include "text/jinja/error.h"

#include <utility>

namespace moewe::text::jinja {

void Raise(std::string type, std::string message, int line) {
  throw Exception{std::move(type), std::move(message), line};
}
void RaiseTypeError(std::string message) { Raise("TypeError", std::move(message)); }
void RaiseValueError(std::string message) { Raise("ValueError", std::move(message)); }

}  // namespace moewe::text::jinja
