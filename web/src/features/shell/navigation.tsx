import {
  ApartmentOutlined,
  AppstoreOutlined,
  AuditOutlined,
  CloudServerOutlined,
  CloudUploadOutlined,
  DashboardOutlined,
  NodeIndexOutlined,
  PlusCircleOutlined,
  SafetyCertificateOutlined,
  SendOutlined,
  SettingOutlined,
  SolutionOutlined,
  ThunderboltOutlined,
  UnorderedListOutlined,
} from "@ant-design/icons";
import type { ReactNode } from "react";
import type { OperationClass } from "@/api/access";
import type { Messages } from "@/messages";

export type NavItem = {
  key: keyof Messages["shell"]["nav"];
  to: string;
  icon: ReactNode;
  /** Shown only to those who have this right somewhere. */
  need?: OperationClass;
};

export const mainItems: NavItem[] = [
  { key: "overview", to: "/", icon: <DashboardOutlined /> },
  { key: "processes", to: "/processes", icon: <AppstoreOutlined /> },
  { key: "hosts", to: "/hosts", icon: <CloudServerOutlined /> },
  { key: "pools", to: "/pools", icon: <ApartmentOutlined /> },
  { key: "tasks", to: "/tasks", icon: <UnorderedListOutlined /> },
  { key: "events", to: "/events", icon: <ThunderboltOutlined /> },
  { key: "audit", to: "/audit", icon: <AuditOutlined />, need: "admin" },
];

export const adminItems: NavItem[] = [
  { key: "enrol", to: "/enrol", icon: <PlusCircleOutlined />, need: "admin" },
  { key: "relays", to: "/relays", icon: <NodeIndexOutlined />, need: "admin" },
  { key: "upgrades", to: "/upgrades", icon: <CloudUploadOutlined />, need: "admin" },
  { key: "authority", to: "/authority", icon: <SafetyCertificateOutlined />, need: "admin" },
  { key: "access", to: "/access", icon: <SolutionOutlined />, need: "admin" },
  { key: "webhooks", to: "/webhooks", icon: <SendOutlined />, need: "admin" },
  { key: "settings", to: "/settings", icon: <SettingOutlined /> },
];
