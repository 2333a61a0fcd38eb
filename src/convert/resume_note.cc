#include "convert/resume_note.h"

#include <fmt/format.h>

namespace moewe::convert {

std::string ResumeNote(formats::CmfResume resumed, bool asked, size_t done, size_t total,
                       std::string_view things) {
  using formats::CmfResume;
  switch (resumed) {
    case CmfResume::kNothing:
      return asked ? "nothing to resume: starting from the beginning" : "";
    case CmfResume::kNotAsked:
      return "starting over; --resume would have continued the interrupted run";
    case CmfResume::kContinued:
      return fmt::format("resuming: {} of {} {} are there", done, total, things);
    case CmfResume::kContinuedPart:
      return fmt::format("resuming: {} of {} {} are there, damaged ones are written again", done,
                         total, things);
    case CmfResume::kOtherSource:
      return "the source is not the one of the interrupted run: starting over";
    case CmfResume::kOtherPlan:
      return "the options are not those of the interrupted run: starting over";
    case CmfResume::kDamaged:
      return "what the interrupted run left is damaged: starting over";
  }
  return "";
}

}  // namespace moewe::convert
