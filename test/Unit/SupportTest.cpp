//===- SupportTest.cpp - files, environment and progress ------------------===//

#include "flashattn/Support/Environment.h"
#include "flashattn/Support/OutputFile.h"
#include "flashattn/Support/Progress.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <climits>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

using namespace mlir::flashattn;
namespace fs = llvm::sys::fs;

namespace {

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

class OutputFileTest : public testing::Test {
protected:
  void SetUp() override { ASSERT_FALSE(fs::createUniqueDirectory("flashattn-support", folder)); }
  void TearDown() override { fs::remove_directories(folder); }

  std::string at(llvm::StringRef name) const {
    llvm::SmallString<128> path(folder);
    llvm::sys::path::append(path, name);
    return path.str().str();
  }
  static std::string read(const std::string &path) {
    auto content = llvm::MemoryBuffer::getFile(path);
    return content ? (*content)->getBuffer().str() : "?";
  }
  /// Writes `text`. Returns the error message, or "".
  static std::string write(const std::string &path, llvm::StringRef text) {
    return llvm::toString(writeOutputFile(path, [&](llvm::raw_ostream &os) { os << text; }));
  }
  unsigned countFiles() const {
    unsigned count = 0;
    std::error_code error;
    for (fs::directory_iterator file(folder, error), end; !error && file != end;
         file.increment(error))
      ++count;
    return count;
  }
  static bool isLink(const std::string &path) {
    struct stat found;
    return lstat(path.c_str(), &found) == 0 && S_ISLNK(found.st_mode);
  }

  llvm::SmallString<128> folder;
};

TEST_F(OutputFileTest, ReplacesTheTargetOfALink) {
  ASSERT_EQ(write(at("real"), "old"), "");
  ASSERT_EQ(symlink("real", at("near").c_str()), 0);
  ASSERT_EQ(symlink(at("near").c_str(), at("far").c_str()), 0);
  EXPECT_EQ(write(at("far"), "new"), "");
  EXPECT_TRUE(isLink(at("near")) && isLink(at("far")));
  EXPECT_EQ(read(at("real")), "new");
  // A link whose target does not exist yet.
  ASSERT_EQ(symlink("made", at("dangling").c_str()), 0);
  EXPECT_EQ(write(at("dangling"), "made"), "");
  EXPECT_TRUE(isLink(at("dangling")));
  EXPECT_EQ(read(at("made")), "made");
  EXPECT_EQ(countFiles(), 5u);
  // A link to itself.
  ASSERT_EQ(symlink("round", at("round").c_str()), 0);
  EXPECT_NE(write(at("round"), "x"), "");
}

TEST_F(OutputFileTest, WritesToWhatIsNoFile) {
  ASSERT_EQ(mkfifo(at("fifo").c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = read(at("fifo")); });
  EXPECT_EQ(write(at("fifo"), "through"), "");
  reader.join();
  EXPECT_EQ(got, "through");
  EXPECT_TRUE(isStream(at("fifo")));
  // Through a link, so that a bug cannot replace the device file of the machine.
  ASSERT_EQ(symlink("/dev/full", at("full").c_str()), 0);
  EXPECT_EQ(write(at("full"), "x"), "cannot write '" + at("full") + "': No space left on device");
  EXPECT_TRUE(isStream(at("full")) && isLink(at("full")));
  ASSERT_EQ(symlink("/dev/null", at("null").c_str()), 0);
  EXPECT_EQ(write(at("null"), "x"), "");
  // A descriptor is written at its current position, even if it refers to a regular file.
  int file = open(at("file").c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_EQ(::write(file, "first ", 6), 6);
  for (const char *folder : {"/dev/fd/", "/proc/self/fd/"})
    EXPECT_EQ(write(folder + std::to_string(file), "then "), "");
  close(file);
  EXPECT_EQ(read(at("file")), "first then then ");
}

TEST_F(OutputFileTest, KeepsWhatWasThereUntilAllIsWhole) {
  ASSERT_EQ(write(at("a"), "old"), "");
  {
    OutputFiles files;
    auto print = [](llvm::raw_ostream &os) { os << "new"; };
    ASSERT_FALSE(bool(files.write(at("a"), print)));
    EXPECT_EQ(read(at("a")), "old");
    EXPECT_EQ(llvm::toString(files.write(at("none/b"), print)),
              "cannot write '" + at("none/b") + "': No such file or directory");
  }
  EXPECT_EQ(read(at("a")), "old");
  EXPECT_EQ(countFiles(), 1u);
  EXPECT_EQ(write(folder.str().str(), "x"),
            "cannot write '" + folder.str().str() + "': Is a directory");
  // Another program's output, to a file and to a device.
  {
    OutputFiles files;
    llvm::Expected<std::string> path = files.create(at("a"));
    ASSERT_TRUE(bool(path));
    ASSERT_EQ(write(*path, "made"), "");
    EXPECT_EQ(read(at("a")), "old");
    ASSERT_EQ(symlink("/dev/full", at("full").c_str()), 0);
    llvm::Expected<std::string> full = files.create(at("full"));
    ASSERT_TRUE(bool(full));
    ASSERT_EQ(write(*full, "made"), "");
    EXPECT_NE(llvm::toString(files.keep()), "");
    EXPECT_FALSE(fs::exists(*full));
  }
  EXPECT_EQ(read(at("a")), "old");
}

TEST_F(OutputFileTest, KeepsThePermissionsOfAFile) {
  ASSERT_EQ(write(at("a"), "old"), "");
  ASSERT_EQ(chmod(at("a").c_str(), 0640), 0);
  EXPECT_EQ(write(at("a"), "new"), "");
  struct stat found;
  ASSERT_EQ(stat(at("a").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0640u);
}

TEST_F(OutputFileTest, ScratchFilesGo) {
  std::string path;
  {
    llvm::Expected<ScratchFile> file = ScratchFile::create("content");
    ASSERT_TRUE(bool(file));
    path = file->getPath().str();
    EXPECT_EQ(read(path), "content");
  }
  EXPECT_FALSE(fs::exists(path));
}

//===----------------------------------------------------------------------===//
// Environment
//===----------------------------------------------------------------------===//

/// Each case uses another variable, because each variable is reported only once.
TEST(Environment, NumbersOutsideOfTheirRangeAreTheDefault) {
  auto get = [](const char *name, const char *value) {
    setenv(name, value, 1);
    testing::internal::CaptureStderr();
    int64_t number = getNumber(name, 1, 10, 5);
    return std::to_string(number) + testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(get("FLASHATTN_A", ""), "5");
  EXPECT_EQ(get("FLASHATTN_A", "10"), "10");
  auto warning = [](std::string name, std::string value) {
    return "5flashattn: warning: expected " + name + " to be a number from 1 to 10 but got '" +
           value + "'; 5 is used\n";
  };
  EXPECT_EQ(get("FLASHATTN_B", "0"), warning("FLASHATTN_B", "0"));
  EXPECT_EQ(get("FLASHATTN_B", "11"), "5"); // reported already
  EXPECT_EQ(get("FLASHATTN_C", "3x"), warning("FLASHATTN_C", "3x"));
  EXPECT_EQ(get("FLASHATTN_D", " 3"), warning("FLASHATTN_D", " 3"));
  EXPECT_EQ(get("FLASHATTN_E", "99999999999999999999"),
            warning("FLASHATTN_E", "99999999999999999999"));
  setenv("FLASHATTN_F", "-1", 1);
  testing::internal::CaptureStderr();
  EXPECT_EQ(getNumber("FLASHATTN_F", 1, INT64_MAX, 7), 7);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "flashattn: warning: expected FLASHATTN_F to be a number of at least 1 but got '-1'; 7 "
            "is used\n");
}

TEST(Environment, SwitchesHaveWords) {
  for (bool byDefault : {false, true}) {
    testing::internal::CaptureStderr();
    for (const char *word : {"0", "off", "OFF", "No", "false"}) {
      setenv("FLASHATTN_S", word, 1);
      EXPECT_FALSE(getSwitch("FLASHATTN_S", byDefault)) << word;
      EXPECT_TRUE(getPathOrSwitch("FLASHATTN_S").isOff) << word;
    }
    for (const char *word : {"1", "on", "On", "yes", "TRUE"}) {
      setenv("FLASHATTN_S", word, 1);
      EXPECT_TRUE(getSwitch("FLASHATTN_S", byDefault)) << word;
      EXPECT_FALSE(getPathOrSwitch("FLASHATTN_S").isOff) << word;
      EXPECT_EQ(getPathOrSwitch("FLASHATTN_S").path, nullptr) << word;
    }
    setenv("FLASHATTN_S", "", 1);
    EXPECT_EQ(getSwitch("FLASHATTN_S", byDefault), byDefault);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  }
  setenv("FLASHATTN_T", "maybe", 1);
  testing::internal::CaptureStderr();
  EXPECT_TRUE(getSwitch("FLASHATTN_T", true));
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "flashattn: warning: expected FLASHATTN_T to be 0 or 1 but got 'maybe'; 1 is used\n");
  EXPECT_STREQ(getPathOrSwitch("FLASHATTN_T").path, "maybe");
}

//===----------------------------------------------------------------------===//
// Progress
//===----------------------------------------------------------------------===//

TEST(Progress, SaysNowAndThenWhatGoesOnWhereThereIsNoTerminal) {
  using std::chrono::milliseconds;
  testing::internal::CaptureStderr();
  { Progress progress("quick", milliseconds(60000), milliseconds(1)); }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  {
    Progress progress("slow", milliseconds(1), milliseconds(20));
    std::this_thread::sleep_for(milliseconds(200));
  }
  std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(said.find("slow … 0 s\nslow … 0 s\n"), 0u) << said;
  // A new step does not restart the delay.
  testing::internal::CaptureStderr();
  {
    Progress progress("first", milliseconds(100), milliseconds(60000));
    for (int i = 0; i < 40; ++i) {
      progress.set("step");
      std::this_thread::sleep_for(milliseconds(10));
    }
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "step … 0 s\n");
}

} // namespace
