// A reference to a callable, for parameters that are called before the function returns: no
// allocation, no ownership, one indirect call.
#ifndef MOEWE_BASE_FUNCTION_REF_H_
#define MOEWE_BASE_FUNCTION_REF_H_

#include <memory>
#include <type_traits>
#include <utility>

namespace moewe {

template <typename Signature>
class FunctionRef;

template <typename R, typename... Args>
class FunctionRef<R(Args...)> {
 public:
  template <typename F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> &&
             std::is_invocable_r_v<R, F&, Args...>)
  FunctionRef(F&& callable)  // NOLINT(google-explicit-constructor): a parameter type
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
        }) {}

  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

}  // namespace moewe

#endif  // MOEWE_BASE_FUNCTION_REF_H_
