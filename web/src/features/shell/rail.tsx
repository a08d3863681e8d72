import { MenuFoldOutlined, MenuUnfoldOutlined } from "@ant-design/icons";
import { useEffect, useState } from "react";
import { NavLink, useLocation } from "react-router";
import { useMessages, useSettings } from "@/settings/context";
import { hasRight, useSession } from "@/ui/rights";
import { onShellCommand } from "./commands";
import { adminItems, mainItems, type NavItem } from "./navigation";

/** The navigation: a rail that collapses to icons, and a drawer on a phone. */
export function Rail() {
  const { shell, common } = useMessages();
  const { preferences, change } = useSettings();
  const [isOpen, setOpen] = useState(false);
  const location = useLocation();
  const isCollapsed = preferences.isRailCollapsed;

  useEffect(() => onShellCommand("menu", () => setOpen((now) => !now)), []);
  // biome-ignore lint/correctness/useExhaustiveDependencies: closes whenever the page changes
  useEffect(() => setOpen(false), [location.pathname]);

  const label = isCollapsed ? shell.expand : shell.collapse;
  return (
    <>
      {isOpen && (
        <button
          type="button"
          className="rail-veil"
          aria-label={common.close}
          onClick={() => setOpen(false)}
        />
      )}
      <nav
        className={`rail${isCollapsed ? " is-collapsed" : ""}${isOpen ? " is-open" : ""}`}
        aria-label={shell.mainNavigation}
      >
        <NavLink to="/" className="brand" aria-label={common.product}>
          <img src="/favicon.svg" alt="" width="22" height="22" />
          <span className="rail-label">{common.product}</span>
        </NavLink>
        <Items items={mainItems} />
        <hr />
        <Items items={adminItems} />
        <span className="grow" />
        <button
          type="button"
          className="rail-item rail-toggle"
          aria-label={label}
          title={label}
          onClick={() => change({ isRailCollapsed: !isCollapsed })}
        >
          <span className="rail-icon">{isCollapsed ? <MenuUnfoldOutlined /> : <MenuFoldOutlined />}</span>
          <span className="rail-label">{shell.collapse}</span>
        </button>
      </nav>
    </>
  );
}

function Items({ items }: { items: NavItem[] }) {
  const { shell } = useMessages();
  const session = useSession();
  return items
    .filter((item) => !item.need || hasRight(session, item.need))
    .map((item) => (
      <NavLink
        key={item.key}
        to={item.to}
        end={item.to === "/"}
        className="rail-item"
        title={shell.nav[item.key]}
      >
        <span className="rail-icon">{item.icon}</span>
        <span className="rail-label">{shell.nav[item.key]}</span>
      </NavLink>
    ));
}
