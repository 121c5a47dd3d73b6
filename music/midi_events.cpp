#include "music/midi_events.h"

#include <array>

#include "core/error.h"

namespace stretto::music {
namespace {

constexpr int meta_event = 0xFF;
constexpr int end_of_track = 0x2F;

std::string hex(int byte) {
  constexpr const char* digits = "0123456789ABCDEF";
  return std::string("0x") + digits[byte >> 4 & 15] + digits[byte & 15];
}

/// Returns the number of data bytes of a system message from 0xF1 on.
int system_data_bytes(int status) {
  constexpr std::array<int, 15> counts = {0, 1, 2, 1};
  return counts[size_t(status & 15)];
}

}  // namespace

void MidiSource::refuse(size_t offset, const std::string& reason) const {
  fail("read_midi", path, ": byte ", int64_t(offset), ": ", reason);
}

void MidiSource::warn(size_t offset, const std::string& defect) const {
  if (warnings.size() == max_midi_warnings) return;
  warnings.push_back("byte " + std::to_string(offset) + ": " + defect);
}

bool MidiEvents::next(MidiEvent& event) {
  if (done_) return false;
  const size_t begin = at_;
  if (at_ == end_) {
    source_.warn(begin, "the track has no End of Track");
    done_ = true;
  } else if (read(event) == Read::cut) {
    source_.warn(begin, "the track ends inside an event");
    at_ = end_;
    done_ = true;
  } else {
    done_ = event.status == meta_event && event.first == end_of_track;
    return true;
  }
  return false;
}

MidiEvents::Read MidiEvents::read(MidiEvent& event) {
  event = {};
  event.offset = at_;
  uint32_t delta = 0;
  int byte = 0;
  if (!take_variable(delta) || !take(byte)) return Read::cut;
  event.tick = tick_ + delta;
  Read result = Read::whole;
  if (byte < 0xF0) {
    result = channel_message(event, byte);
  } else {
    event.status = byte;
    result = system_message(event);
  }
  if (result == Read::whole) tick_ = event.tick;
  return result;
}

MidiEvents::Read MidiEvents::channel_message(MidiEvent& event, int byte) {
  if (byte < 0x80) {
    --at_;  // running status: the status byte is omitted
    if (running_status_ == 0)
      source_.refuse(at_, "data byte " + hex(byte) + " has no status before it");
    if (canceled_) source_.warn(at_, "running status continues after a meta or system message");
  } else {
    running_status_ = byte;
  }
  canceled_ = false;
  event.status = running_status_;
  const int message = event.status >> 4;
  const bool one_data_byte = message == 0xC || message == 0xD;
  if (!take_data_byte(event.first)) return Read::cut;
  if (!one_data_byte && !take_data_byte(event.second)) return Read::cut;
  return Read::whole;
}

MidiEvents::Read MidiEvents::system_message(MidiEvent& event) {
  const bool exclusive = event.status == 0xF0 || event.status == 0xF7;
  if (exclusive || event.status == meta_event) {
    canceled_ = true;
    if (event.status == meta_event && !take(event.first)) return Read::cut;
    return take_data(event.data) ? Read::whole : Read::cut;
  }
  source_.warn(at_ - 1, "system message " + hex(event.status) + " inside a track is skipped");
  if (event.status < 0xF8) canceled_ = true;  // real-time messages do not cancel running status
  for (int i = 0; i < system_data_bytes(event.status); ++i)
    if (!take_data_byte(event.first)) return Read::cut;
  return Read::whole;
}

bool MidiEvents::take(int& byte) {
  if (at_ == end_) return false;
  byte = source_.byte(at_++);
  return true;
}

bool MidiEvents::take_variable(uint32_t& value) {
  const size_t begin = at_;
  value = 0;
  for (int i = 0; i < 4; ++i) {
    int byte = 0;
    if (!take(byte)) return false;
    value = value << 7 | uint32_t(byte & 0x7F);
    if (byte < 0x80) return true;
  }
  source_.refuse(begin, "a variable-length quantity has more than 4 bytes");
}

bool MidiEvents::take_data(std::string_view& data) {
  uint32_t length = 0;
  if (!take_variable(length) || length > end_ - at_) return false;
  data = source_.bytes.substr(at_, length);
  at_ += length;
  return true;
}

bool MidiEvents::take_data_byte(int& byte) {
  if (!take(byte)) return false;
  if (byte > 0x7F) source_.refuse(at_ - 1, "data byte " + hex(byte) + "; expected 0x00 to 0x7F");
  return true;
}

}  // namespace stretto::music
