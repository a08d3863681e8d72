import { MenuOutlined, MoonOutlined, SearchOutlined, SunOutlined, UserOutlined } from "@ant-design/icons";
import { Button, Popover } from "antd";
import { useMessages, useSettings } from "@/settings/context";
import { useSession } from "@/ui/rights";
import { shellCommand } from "./commands";
import { RunningTasks } from "./running-tasks";
import { WhoAmI } from "./who-am-i";

export function TopBar() {
  const { shell } = useMessages();
  const { isDark, change, preferences } = useSettings();
  const session = useSession();
  const who = session.user ?? session.app ?? "";
  const otherLanguage = preferences.language === "en" ? "中文" : "EN";
  const theme = isDark ? shell.themeLight : shell.themeDark;
  return (
    <header className="top-bar">
      <Button
        className="menu-button"
        type="text"
        icon={<MenuOutlined />}
        aria-label={shell.openMenu}
        onClick={() => shellCommand("menu")}
      />
      <button type="button" className="search-box" onClick={() => shellCommand("palette")}>
        <SearchOutlined aria-hidden />
        <span className="grow truncate">{shell.search}</span>
        <span className="search-keys" aria-hidden="true">
          <kbd>/</kbd> <kbd>Ctrl K</kbd>
        </span>
      </button>
      <span className="grow" />
      <RunningTasks />
      <Button
        type="text"
        className="language-button"
        aria-label={`${shell.language}: ${otherLanguage}`}
        onClick={() => change({ language: preferences.language === "en" ? "zh" : "en" })}
      >
        {otherLanguage}
      </Button>
      <Button
        type="text"
        icon={isDark ? <SunOutlined /> : <MoonOutlined />}
        aria-label={`${shell.theme}: ${theme}`}
        title={theme}
        onClick={() => change({ theme: isDark ? "light" : "dark" })}
      />
      <Popover trigger="click" content={<WhoAmI />} placement="bottomRight" arrow={false}>
        <Button
          type="text"
          icon={<UserOutlined />}
          aria-label={shell.signedInAs(who)}
          title={shell.signedInAs(who)}
        >
          <span className="who-name truncate">{who}</span>
        </Button>
      </Popover>
    </header>
  );
}
